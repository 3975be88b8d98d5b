#!/bin/sh
# Stands in for the C compiler of a target. Objects are empty, because a check links nothing.
# Questions about the compiler and the preprocessor go to the compiler of the host.
compile=
output=
previous=
for argument; do
    [ "$argument" = -c ] && compile=yes
    [ "$previous" = -o ] && output=$argument
    previous=$argument
done
[ -n "$compile" ] || exec cc "$@"
[ -z "$output" ] || : >"$output"
