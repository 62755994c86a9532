"""`python -m holdfast` is `holdfast`."""

from holdfast_command import main

main()
