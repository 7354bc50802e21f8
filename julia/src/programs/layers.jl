function softmax(x; dims = 2)
    e = exp.(x .- maximum(x; dims))
    return e ./ total(e; dims)
end

const EPSILON = 2.0^-10 # as in layer_norm.py

function layer_norm(x, gain, shift)
    centred = x .- mean(x; dims = 2)
    variance = mean(centred .* centred; dims = 2)
    return centred ./ sqrt.(variance .+ number_type(x)(EPSILON)) .* as_row(gain) .+ as_row(shift)
end

function attention(q, k, v)
    scale = number_type(q)(size(q, 3)^-0.5)
    scores = batched_product(q, k, (3, 3)) .* scale
    return batched_product(softmax(scores; dims = 3), v, (3, 2))
end
