"""`pyreactant setup`: install and compile Julia, Reactant and our Julia package, once."""
