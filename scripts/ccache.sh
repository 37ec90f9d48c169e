# Sourced: lets build folders of one tree, and clones of it, share what ccache holds. Paths in the tree
# count relative to it, and the folder of the build, which only debug information names, does not count.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD}
export CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
