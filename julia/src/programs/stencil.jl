const RATE = 0.125 # as in heat.py

function heat(u; steps)
    u = copy(u) # Reactant's loop writes to the array that it begins with (Ops.jl:2444)
    @loop for _ in 1:steps
        u = heat_step(u)
    end
    return u
end

function heat_step(u)
    T, (m, n) = number_type(u), size(u)
    # What comes in over an edge comes from the far edge, and is set to zero.
    first_row, last_row = T.((1:m) .> 1), T.((1:m) .< m)
    first_column, last_column = as_row(T.((1:n) .> 1)), as_row(T.((1:n) .< n))
    above = circshift(u, (1, 0)) .* first_row
    below = circshift(u, (-1, 0)) .* last_row
    left = circshift(u, (0, 1)) .* first_column
    right = circshift(u, (0, -1)) .* last_column
    return u .+ T(RATE) .* (above .+ below .+ left .+ right .- T(4) .* u)
end
