"""Python imports this at its start in processes to which a test gives a fault."""

import os

if "TEST_FAULT_OF_A_DEVICE" in os.environ:
    from tests.burnin.hook import install_from_environment

    install_from_environment()
