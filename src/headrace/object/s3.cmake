# The driver s3, included by CMakeLists.txt.
target_sources(headrace_object PRIVATE
  range_request.cc retry_after.cc timestamp.cc uri.cc
  s3/answers.cc s3/credential_sources.cc s3/credentials.cc s3/failure.cc s3/profiles.cc
  s3/redirect.cc s3/s3_listing.cc s3/s3_session.cc s3/s3_store.cc s3/s3_upload.cc s3/settings.cc s3/signer.cc
  s3/xml.cc)
headrace_test(s3_test
  SOURCES
    range_request_test.cc retry_after_test.cc timestamp_test.cc uri_test.cc s3/answers_test.cc
    s3/credentials_test.cc s3/failure_test.cc s3/redirect_test.cc s3/settings_test.cc s3/signer_test.cc
  USES object net_testing env_testing LIBRARIES rapidcheck LABELS threads)
# A bucket behind a real server of the test's own. For test programs only: USES object_servers.
if(HEADRACE_TESTS)
  add_library(headrace_object_servers STATIC testing/fake_s3.cc)
  target_link_libraries(headrace_object_servers PUBLIC headrace_object headrace_net_testing)
endif()
headrace_test(s3_store_test
  SOURCES s3/s3_store_test.cc
  USES object object_testing object_servers env_testing LABELS threads)
headrace_test(store_faults_test
  SOURCES store_faults_test.cc
  USES object object_servers env_testing LABELS threads)

# Against real servers, which tests/integration/test_s3_servers.py starts.
if(HEADRACE_TESTS)
  add_executable(s3_server_test s3/s3_server_test.cc testing/prefix_store.cc)
  target_link_libraries(s3_server_test PRIVATE headrace_object headrace_object_testing headrace_options
    GTest::gmock GTest::gtest GTest::gtest_main)
  headrace_precompile_test_headers(s3_server_test)
endif()
