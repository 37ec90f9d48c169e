# The driver https, included by CMakeLists.txt.
target_sources(headrace_object PRIVATE https/https_store.cc)
headrace_test(https_store_test
  SOURCES https/https_store_test.cc
  USES object object_testing net_testing env_testing LABELS threads)
