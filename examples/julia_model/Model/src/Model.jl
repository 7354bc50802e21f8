"""
A network with one hidden layer and its gradient, in plain Julia.

Axis i of Python is axis i + 1 here, so `x` and `y` have one row per example.
"""
module Model

"""The mean squared error, and its gradient by each weight."""
function gradients(up, bias, down, x, y)
    hidden = tanh.(x * up .+ reshape(bias, 1, :))
    difference = hidden * down .- y
    slope = 2 .* difference ./ length(y)
    back = (slope * permutedims(down)) .* (1 .- hidden.^2)
    value = sum(abs2, difference) / length(y)
    return value, permutedims(x) * back, vec(sum(back; dims = 1)), permutedims(hidden) * slope
end

"""One step of gradient descent: the new weights, and the loss before the step."""
function step(params, x, y; rate)
    value, up, bias, down = gradients(params.up, params.bias, params.down, x, y)
    # Python's number is a Float64, which would make all weights Float64.
    towards(weights, gradient) = weights .- eltype(weights)(rate) .* gradient
    moved = (
        up = towards(params.up, up),
        bias = towards(params.bias, bias),
        down = towards(params.down, down),
    )
    return moved, value
end

end
