#!/usr/bin/env bash
# Builds the library of the real-sources level: build.sh WHEEL PYTHON FOLDER
#   WHEEL   jaxlib-0.5.3-*.whl, whose MLIR it links
#   PYTHON  a Python with a current jax, which runs XLA
#   FOLDER  for libReactantExtra.so and what it needs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheel=$1 python=$2 folder=$3
mlir=jaxlib/mlir/_mlir_libs/libjaxlib_mlir_capi.so

mkdir -p "$folder/objects"
folder=$(cd "$folder" && pwd)
if [[ ! -e $folder/$(basename "$mlir") ]]; then
  "$python" -I - "$wheel" "$mlir" "$folder" <<'PYTHON'
import pathlib, sys, zipfile
wheel, member, folder = sys.argv[1:]
data = zipfile.ZipFile(wheel).read(member)
pathlib.Path(folder, pathlib.Path(member).name).write_bytes(data)
PYTHON
fi

flags=(-std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -Wall -Wextra
  "-DCHILD_PYTHON=\"$python\"" "-DCHILD_FOLDER=\"$here/child\"")
objects=()
for source in "$here"/*.cpp; do
  object=$folder/objects/$(basename "$source" .cpp).o
  objects+=("$object")
  if [[ -z $(find "$source" "$here"/*.h "$here/build.sh" -newer "$object" 2>&1) ]]; then continue; fi
  "${CXX:-g++}" "${flags[@]}" -c "$source" -o "$object"
done
"${CXX:-g++}" -shared -Wl,-soname,libReactantExtra.so -o "$folder/libReactantExtra.so" "${objects[@]}" \
  -L"$folder" -l:"$(basename "$mlir")" "-Wl,-rpath,\$ORIGIN" -Wl,--no-undefined -pthread -ldl
echo "$folder/libReactantExtra.so"
