"""The Reactant runtime; no other package talks to Julia in this process."""
