"""Race tests: every order in which two verbs of the store can meet, tried one by one instead of hoped for.

`actor` stops a verb before each of its statements, `stage` lets one actor do one step at a time, `schedules` goes
through all the orders there are, and `arena` puts the same world under each of them and judges how it ended.
"""
