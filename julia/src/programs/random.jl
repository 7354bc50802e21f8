# Divisions by powers of two are shifts, which Reactant has no operator for. The conversion has a
# line of its own: within other operations Reactant does not convert (TracedRArray.jl:318-331).
function random_fill(keys)
    n = length(keys)
    columns = as_row(UInt32.(0:(n - 1)))
    bits = columns .* 0x9e3779b9 .+ reshape(keys, n, 1)
    bits = xor.(bits, div.(bits, 0x00010000)) .* 0x7feb352d
    bits = xor.(bits, div.(bits, 0x00008000)) .* 0x846ca68b
    bits = xor.(bits, div.(bits, 0x00010000))
    shortened = div.(bits, 0x00000100)
    converted = Float32.(shortened)
    return converted .* Float32(2.0^-24)
end
