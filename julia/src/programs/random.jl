# Divisions by powers of two are shifts, which Reactant has no operator for.
function random_fill(keys)
    n = length(keys)
    columns = as_row(UInt32.(0:(n - 1)))
    bits = columns .* 0x9e3779b9 .+ reshape(keys, n, 1)
    bits = xor.(bits, div.(bits, 0x00010000)) .* 0x7feb352d
    bits = xor.(bits, div.(bits, 0x00008000)) .* 0x846ca68b
    bits = xor.(bits, div.(bits, 0x00010000))
    return Float32.(div.(bits, 0x00000100)) .* Float32(2.0^-24)
end
