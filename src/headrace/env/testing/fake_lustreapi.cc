// Stands for Lustre's library in a test: writes down what it was asked for, in the folder itself.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

extern "C" __attribute__((visibility("default"))) int llapi_file_create(
    const char* name, unsigned long long stripe_size, int stripe_offset, int stripe_count,
    int stripe_pattern) {
  if (std::strstr(name, "elsewhere") != nullptr) return -ENOTTY;
  if (std::strstr(name, "forbidden") != nullptr) return -EACCES;
  std::FILE* file = std::fopen((std::string(name) + "/layout").c_str(), "w");
  if (file == nullptr) return -errno;
  std::fprintf(file, "%llu %d %d %d", stripe_size, stripe_offset, stripe_count, stripe_pattern);
  std::fclose(file);
  return 0;
}
