"Stands in for the binary package of Enzyme, which sets options of its library as it loads."
module Enzyme_jll

using Reactant_jll: Reactant_jll

export libEnzyme, libEnzymeBCLoad

const libEnzyme = Reactant_jll.libReactantExtra
const libEnzymeBCLoad = Reactant_jll.libReactantExtra

is_available() = true

end
