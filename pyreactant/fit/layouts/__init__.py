"""The layouts of a program by closed forms: what each device holds, computes and exchanges."""
