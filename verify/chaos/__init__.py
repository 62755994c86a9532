"""Kill and freeze real workers on one store, then count what was lost.

    python -m verify.chaos --kills 300 --zombies 30

The parent opens no store and no thread; it only forks, kills (SIGKILL), freezes and thaws
(SIGSTOP, SIGCONT). Its children are workers, a submitter that is killed too and then sends the
same keys again, and an operator who pauses, resumes, rolls back and starts anew. Whatever a stage
does is written to a ledger outside the store, so that the judge need not believe the store.

A round is about one subject: tasks (`task_round.py`), triggers that are fired by processes whose
clocks jump (`trigger_round.py`), or plans over shared tenants (`plan_round.py`). ``--only
triggers,plans`` leaves out the rest. `judges/` has the judge of each subject.
"""
