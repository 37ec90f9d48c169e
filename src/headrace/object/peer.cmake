# The driver peer and its server, included by CMakeLists.txt.
target_sources(headrace_object PRIVATE
  peer/peer_connections.cc peer/peer_ledger.cc peer/peer_protocol.cc peer/peer_server.cc peer/peer_store.cc
  peer/peer_stream.cc peer/peer_uploads.cc peer/token.cc)
headrace_test(peer_test
  SOURCES peer/peer_protocol_test.cc peer/peer_server_test.cc peer/peer_store_test.cc peer/token_test.cc
  USES object object_testing env_testing LABELS threads)
