"""Which method can be trusted on this data, and what does it cost? Methods fitted to the same splits and graded alike.

`api.compare` and `api.grade` are `po.compare` and `po.grade`; `plan.plan` serves the command line, `tour.tour` shows it
all. What they find is described in `results`.
"""
