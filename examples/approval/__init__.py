"""An approval by two people: updates that answer, reminders, and an end when nobody decides."""
