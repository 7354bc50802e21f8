# Loads what every process of a run loads, so that Julia compiles it once, and writes the versions.
# Arguments: the folder of the package PyReactant, and the file for the answer.
using TOML: TOML

const REACTANT = Base.PkgId(Base.UUID("3c362404-f566-11ee-1572-e11a4b42c853"), "Reactant")
const PYTHON_CALL = Base.PkgId(Base.UUID("6099a3de-0909-46bc-b1f4-468b9a2dfc0d"), "PythonCall")
const JLL = Base.PkgId(Base.UUID("0192cb87-2b54-54ad-80e0-3be72ad8a3c0"), "Reactant_jll")

function absent()
    return [id.name for id in (REACTANT, PYTHON_CALL) if Base.locate_package(id) === nothing]
end

version_of(id) = string(something(pkgversion(Base.loaded_modules[id]), ""))

function runtime()
    reactant = Base.loaded_modules[REACTANT]
    isdefined(reactant, :XLA) && isdefined(reactant.XLA, :REACTANT_XLA_RUNTIME) || return ""
    return string(reactant.XLA.REACTANT_XLA_RUNTIME)
end

function binaries()
    haskey(Base.loaded_modules, JLL) || return Dict{String,Any}()
    jll = Base.loaded_modules[JLL]
    return Dict{String,Any}(
        "version" => version_of(JLL),
        "available" => jll.is_available(),
        "platform" => Base.BinaryPlatforms.triplet(jll.host_platform),
    )
end

function versions()
    return Dict{String,Any}(
        "julia" => string(VERSION),
        "reactant" => version_of(REACTANT),
        "pythoncall" => version_of(PYTHON_CALL),
        "runtime" => runtime(),
        "binaries" => binaries(),
    )
end

answer(content) = open(io -> TOML.print(io, content), ARGS[2], "w")

push!(LOAD_PATH, joinpath(ARGS[1], "start"), ARGS[1])
if isempty(absent())
    Base.require(PYTHON_CALL)
    Base.invokelatest(Base.require(Main, :PyReactantStart).load)
    answer(Base.invokelatest(versions))
else
    answer(Dict("absent" => absent()))
    exit(3)
end
