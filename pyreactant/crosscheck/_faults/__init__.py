"""What kind of wrong a block is."""
