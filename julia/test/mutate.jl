# A definition of PyReactant as it would be without the code that avoids a trap; which, and that a
# test notices, is in tests/julia/traps.py and test_traps.py. PYREACTANT_MUTANT is the file, and
# _CODE and _WITHOUT are what stands there and what would.

function mutate(file, code, without)
    path = joinpath(dirname(pathof(PyReactant)), file)
    text = read(path, String)
    count(code, text) == 1 || error("$file must have this once: $code")
    at, from = first(findfirst(code, text)), 1
    while from <= ncodeunits(text)
        _, next = Meta.parse(text, from)
        if from <= at < next
            definition = text[from:prevind(text, next)]
            into = startswith(file, "programs/") ? PyReactant.Programs : PyReactant
            include_string(into, replace(definition, code => without), path)
            return nothing
        end
        from = next
    end
end

if haskey(ENV, "PYREACTANT_MUTANT")
    mutate((ENV["PYREACTANT_MUTANT$part"] for part in ("", "_CODE", "_WITHOUT"))...)
end
