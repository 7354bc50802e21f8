"""Cloud TPU queued resources: create, wait for, use and always delete them."""
