# What handles whole files, beside loading: encoders, transcodes, checks. Included by CMakeLists.txt.
target_sources(headrace_codec PRIVATE image_encoder.cc jpeg_transcode.cc pixel_check.cc thumbnail.cc)
headrace_test(codec_files_test
  SOURCES whole_files_test.cc testing/test_images.cc
  USES codec)
