"""Futures: several continuations of a session from one checkpoint, side by side, each in a process with files of its own.

`values` has the plan, the estimate and the limits; `running` is the running set, with which a screen or a command starts,
steers, stops and answers them. Nothing of this package is imported before somebody asks for futures, except `values`.
"""
