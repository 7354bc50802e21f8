"Stands in for the binary package of Tracy, a profiler."
module LibTracyClient_jll

using Reactant_jll: Reactant_jll

export libTracyClient

const libTracyClient = Reactant_jll.libReactantExtra

is_available() = true

end
