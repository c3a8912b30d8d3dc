"""Which method can be trusted on this data, and what does it cost? Methods fitted to the same splits and graded alike.

A comparison goes through five rooms, one way: `ask` (data, splits, a model), `enter` (methods, baselines, budgets),
`run` (fits and records), `judge` (scores, differences), `tell` (results.json, words, tables). `api.compare` and
`api.grade` are `po.compare` and `po.grade`; `tour.tour` shows it all.
"""
