#!/usr/bin/env bash
# Brings Debian's source of Abseil, for a library that has it inside: the archives of libabsl-dev are
# not made for that (no -fPIC).
#
#   abseil.sh FOLDER          # makes it; leaves it as it is where it is complete
set -euo pipefail
folder=$1
[ ! -e "$folder/CMakeLists.txt" ] || exit 0
parent=$(dirname "$folder")
mkdir -p "$parent"
work=$(mktemp -d "$parent/abseil.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial"
# The sources of what this machine takes its packages from.
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) main' 'Created-By: Packages' 'Component: main' |
  sort -u >"$work/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$work/lists"
         -o APT::Sandbox::User=root)
apt-get "${options[@]}" update || true  # a repository without sources
(cd "$work" && apt-get "${options[@]}" source --download-only abseil)
mkdir "$work/tree"
tar -xf "$work"/abseil_*.orig.tar.* -C "$work/tree" --strip-components=1
mv "$work/tree" "$folder"
