# What julia/test/level asks of Julia's package manager:
#   project.jl make FOLDER NAME[@VERSION] ...   a new project with these packages
#   project.jl list FOLDER                      as TOML, the version of each package that is there
using Pkg: Pkg, PackageSpec
using TOML: TOML

function spec(word)
    name, version = [split(word, '@'); ""]
    return isempty(version) ? PackageSpec(; name) : PackageSpec(; name, version)
end

verb, folder = ARGS[1:2]
Pkg.activate(folder; io = devnull)
if verb == "make"
    Pkg.add(map(spec, ARGS[3:end]))
else
    found = [p for p in values(Pkg.dependencies()) if p.source !== nothing && isdir(p.source)]
    TOML.print(Dict(p.name => string(something(p.version, "")) for p in found))
end
