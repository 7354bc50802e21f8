# These have the names of functions of Base, which they call by its name.
transpose(x) = permutedims(x)

# Reactant's isless is <, which leaves NaN anywhere. Julia and NumPy sort it to the end.
nan_last(a, b) = (a < b) | ((a == a) & (b != b))
sort(x) = Base.sort(x; dims = 2, lt = nan_last)

gather(table, indices) = table[indices .+ 1, :]
