perceptron(x, w, c, v, d) = tanh.(x * w .+ as_row(c)) * v .+ as_row(d)

function loss(w, c, v, d, x, t)
    residual = perceptron(x, w, c, v, d) .- t
    return sum(residual .* residual) / (2 * size(x, 1))
end

function perceptron_gradient(x, w, c, v, d, t)
    # The tests' stand-in for Reactant comes without Enzyme.
    isdefined(Reactant, :Enzyme) || return gradient_by_hand(x, w, c, v, d, t)
    E = Reactant.Enzyme
    return E.gradient(E.Reverse, loss, w, c, v, d, E.Const(x), E.Const(t))[1:4]
end

function gradient_by_hand(x, w, c, v, d, t)
    hidden = tanh.(x * w .+ as_row(c))
    residual = (hidden * v .+ as_row(d) .- t) ./ size(x, 1)
    back = residual * Base.transpose(v) .* (1 .- hidden .* hidden)
    return Base.transpose(x) * back,
        vec(sum(back; dims = 1)),
        Base.transpose(hidden) * residual,
        vec(sum(residual; dims = 1))
end

const LEARNING_RATE = 0.25 # as in perceptron.py

function sgd_step(x, w, c, v, d, t)
    rate = number_type(w)(LEARNING_RATE)
    gradients = perceptron_gradient(x, w, c, v, d, t)
    return map((p, g) -> p .- rate .* g, (w, c, v, d), gradients)
end
