"""`pyreactant bisect`: a program with wrong results, cut down to the operations that are wrong."""
