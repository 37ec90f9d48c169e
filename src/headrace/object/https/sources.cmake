# The driver https, included by the module's CMakeLists.txt.
target_sources(headrace_object PRIVATE https/https_store.cc)
