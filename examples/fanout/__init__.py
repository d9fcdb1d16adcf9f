"""A fan-out: a stocktaking starts one child for each shop, and sums up what they return or why they failed."""
