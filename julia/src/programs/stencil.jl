const RATE = 0.125 # as in stencil.py

function heat(u; steps)
    u = copy(u) # Reactant's loop writes to the array that it begins with (Ops.jl:2444)
    @loop for _ in 1:steps
        u = heat_step(u)
    end
    return u
end

function heat_step(u)
    T = number_type(u)
    around = shifted(u, 1, 1) .+ shifted(u, -1, 1) .+ shifted(u, 1, 2) .+ shifted(u, -1, 2)
    return u .+ T(RATE) .* (around .- T(4) .* u)
end

# As in stencil.py, each element moves by one (1 or -1) along an axis, and zeros come in over the
# edge. Elements of the far edge times zero would do for numbers, but not for infinity.
function shifted(u, by, axis)
    low = Int[d == axis ? by : 0 for d in 1:2]
    edge = Reactant.Ops.constant(zero(number_type(u)))
    return Reactant.Ops.pad(u, edge; low, high = -low)
end
