matmul(x, y) = x * y

matmul_transposed(x, y) = x * Base.transpose(y)

gram(x) = Base.transpose(x) * x

matvec(x, v) = x * v

batched_matmul(x, y) = batched_product(x, y, (3, 2))
