"""The judges compare the ledger with the store and report what is wrong, one for each subject."""
