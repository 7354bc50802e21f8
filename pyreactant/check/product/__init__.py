"""The sharded matrix product: request, product, check and report."""
