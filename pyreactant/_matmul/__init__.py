"""The sharded matrix product: request, product, check, report."""
