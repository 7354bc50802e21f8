row_sum(x) = dropdims(total(x; dims = 2); dims = 2)

full_sum(x) = dropdims(total(x; dims = (1, 2)); dims = (1, 2))

cumsum(x) = accumulate(+, x; dims = 2)
