"""Each store passes the contract in src/holdfast/testing/contract (tasks, plans, triggers).

The other tests here are of one store alone.
"""
