"""Which method can be trusted on this data, and what does it cost? Methods fitted to the same splits and graded alike.

A comparison goes through five rooms, one way; a room knows itself and those before it:

    ask     a Problem: data, the splits of their rows, a model
    enter   Entries: methods, baselines, predictions made elsewhere; budgets
    run     a Ledger of Records: every row on every split, fitted, written down, taken up again
    judge   grades of a row on a split; from all records, scores, differences and verdicts
    tell    results.json, sentences, tables: what a report reads

`api` puts them in a row: `api.compare` and `api.grade` are `po.compare` and `po.grade`, `api.plan` serves the command
line; `tour.tour` shows it all.
"""
