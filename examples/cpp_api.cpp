// Writes an image into a pool and reads it back, in C++17.
//
//   c++ -std=c++17 cpp_api.cpp $(pkg-config --cflags --libs stdchk) -o cpp_api
//   STDCHK_MANAGER=ADDRESS_OR_FILE STDCHK_SECRET_FILE=FILE ./cpp_api [NAME]
#include <cstdio>
#include <stdchk.hpp>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const std::string name = argc > 1 ? argv[1] : "example.N0.T1";
  const std::vector<unsigned char> bytes(1 << 20, 7);
  stdchk::Pool pool;
  stdchk::File image = pool.open(name, O_WRONLY | O_CREAT | O_TRUNC);
  image.write(bytes.data(), bytes.size());
  image.close();

  std::vector<unsigned char> got(pool.stat(name).size_bytes);
  stdchk::File again = pool.open(name, O_RDONLY);
  again.read(got.data(), got.size());
  std::printf("%s: %zu bytes, written and read back %s\n", name.c_str(), got.size(),
              got == bytes ? "equal" : "DIFFERENT");
  return got == bytes ? 0 : 1;
} catch (const stdchk::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
