# The writing side of the module, included by its CMakeLists.txt.
target_sources(headrace_dataset PRIVATE
  crew.cc pack.cc pack_layout.cc pack_list.cc pack_shard.cc pack_source.cc pack_staging.cc
  pack_upload.cc verify.cc)
headrace_test(pack_test
  SOURCES crew_test.cc learned_seek_points_test.cc pack_fault_test.cc pack_formats_test.cc pack_test.cc
    pack_upload_test.cc seek_points_test.cc verify_test.cc
    "${CMAKE_SOURCE_DIR}/src/headrace/codec/testing/test_images.cc"
  USES dataset env_testing object_testing LABELS threads)
