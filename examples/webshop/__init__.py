"""A web application whose transactions start and signal workflows: rows and workflows commit or roll back together."""
