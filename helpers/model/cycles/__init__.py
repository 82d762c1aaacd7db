"""Time from machine code: one multiprocessor, cycle by cycle.

`scheduled` reads an instruction's control bits, `chip` what the hardware takes for it, `multiprocessor` lets the warps of the resident
blocks run, and meet at `mbarriers`, `estimate` makes the time of a launch of it. Where the way of the warps cannot be told, or a unit is
not modelled, there is no estimate, with the reason; `model.predict` then has its throughput model.
"""
