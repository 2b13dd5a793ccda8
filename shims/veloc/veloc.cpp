#include "shims/veloc/veloc.h"

#include <climits>
#include <cstdio>
#include <cstring>

#include "shims/veloc/client.h"

// VeloC's interface has no handle: a process has one client.
namespace {

using stdchk::shims::Client;

std::unique_ptr<Client>& client() {
  static std::unique_ptr<Client> only;
  return only;
}

int result(const char* function, const std::string& problem) {
  if (problem.empty()) return VELOC_SUCCESS;
  std::fprintf(stderr, "libveloc-client (stdchk): %s: %s\n", function, problem.c_str());
  return VELOC_FAILURE;
}

int absent(const char* function) {
  return result(function, "VELOC_Init was not called, or failed");
}

std::string text_of(const char* text) { return text != nullptr ? text : ""; }

std::vector<int> ids_of(const int* ids, int count) {
  return ids != nullptr && count > 0 ? std::vector<int>(ids, ids + count) : std::vector<int>();
}

int start(const char* function, MPI_Comm communicator, const std::string& alone,
          const char* config) {
  if (client()) return result(function, "it was called before");
  return result(function, Client::start(communicator, alone, text_of(config), &client()));
}

}  // namespace

extern "C" {

int VELOC_Init(MPI_Comm comm, const char* cfg_file) {
  return start("VELOC_Init", comm, "", cfg_file);
}

int VELOC_Init_single(unsigned int id, const char* cfg_file) {
  return start("VELOC_Init_single", MPI_COMM_NULL, "/single." + std::to_string(id), cfg_file);
}

int VELOC_Finalize(int /*cleanup*/) {
  if (!client()) return absent("VELOC_Finalize");
  client()->finish();
  client().reset();
  return VELOC_SUCCESS;
}

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size) {
  if (!client()) return absent("VELOC_Mem_protect");
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, base_size, &bytes))
    return result("VELOC_Mem_protect", "the region is too large");
  if (count == 0) {
    client()->unprotect(id);
  } else {
    client()->protect(id, {ptr, bytes});
  }
  return VELOC_SUCCESS;
}

int VELOC_Mem_unprotect(int id) {
  if (!client()) return absent("VELOC_Mem_unprotect");
  return result("VELOC_Mem_unprotect",
                client()->unprotect(id) ? "" : "the region is not protected");
}

int VELOC_Route_file(const char* original, char* routed) {
  if (!client()) return absent("VELOC_Route_file");
  std::string path;
  // Programs pass one buffer for both, without a name in it.
  std::string problem = client()->route(original == routed ? "" : text_of(original), &path);
  if (problem.empty() && path.size() >= VELOC_MAX_NAME)
    problem = "the path is longer than VELOC_MAX_NAME: " + path;
  if (problem.empty()) std::memcpy(routed, path.c_str(), path.size() + 1);
  return result("VELOC_Route_file", problem);
}

int VELOC_Checkpoint_begin(const char* name, int version) {
  if (!client()) return absent("VELOC_Checkpoint_begin");
  return result("VELOC_Checkpoint_begin", client()->begin(text_of(name), version));
}

int VELOC_Checkpoint_selective(int mode, int* ids, int id_count) {
  if (!client()) return absent("VELOC_Checkpoint_selective");
  return result("VELOC_Checkpoint_selective", client()->write(mode, ids_of(ids, id_count)));
}

int VELOC_Checkpoint_mem(void) { return VELOC_Checkpoint_selective(VELOC_CKPT_ALL, nullptr, 0); }

int VELOC_Checkpoint_end(int success) {
  if (!client()) return absent("VELOC_Checkpoint_end");
  return result("VELOC_Checkpoint_end", client()->end(success != 0));
}

int VELOC_Checkpoint_wait(void) {
  if (!client()) return absent("VELOC_Checkpoint_wait");
  return client()->last_is_complete() ? VELOC_SUCCESS : VELOC_FAILURE;
}

int VELOC_Checkpoint_finished(void) { return client() ? 1 : VELOC_FAILURE; }
int VELOC_Backend_ready(void) { return client() ? 1 : VELOC_FAILURE; }

int VELOC_Checkpoint(const char* name, int version) {
  if (VELOC_Checkpoint_begin(name, version) != VELOC_SUCCESS) return VELOC_FAILURE;
  const bool is_written = VELOC_Checkpoint_mem() == VELOC_SUCCESS;
  return VELOC_Checkpoint_end(is_written ? 1 : 0);
}

int VELOC_Restart_test(const char* name, int version) {
  if (!client()) return absent("VELOC_Restart_test");
  const int found = client()->newest(text_of(name), version);
  return found >= 0 ? found : VELOC_FAILURE;
}

int VELOC_Restart_begin(const char* name, int version) {
  if (!client()) return absent("VELOC_Restart_begin");
  return result("VELOC_Restart_begin", client()->begin_restart(text_of(name), version));
}

int VELOC_Recover_selective(int mode, int* ids, int id_count) {
  if (!client()) return absent("VELOC_Recover_selective");
  return result("VELOC_Recover_selective", client()->recover(mode, ids_of(ids, id_count)));
}

int VELOC_Recover_mem(void) { return VELOC_Recover_selective(VELOC_RECOVER_ALL, nullptr, 0); }

int VELOC_Recover_size(int id) {
  if (!client()) return absent("VELOC_Recover_size");
  const long long bytes = client()->recover_size(id);
  return bytes <= INT_MAX ? static_cast<int>(bytes)
                          : result("VELOC_Recover_size", "the region is larger than an int says");
}

int VELOC_Restart_end(int success) {
  if (!client()) return absent("VELOC_Restart_end");
  return result("VELOC_Restart_end", client()->end_restart(success != 0));
}

int VELOC_Restart(const char* name, int version) {
  if (VELOC_Restart_begin(name, version) != VELOC_SUCCESS) return VELOC_FAILURE;
  const bool is_read = VELOC_Recover_mem() == VELOC_SUCCESS;
  return VELOC_Restart_end(is_read ? 1 : 0);
}

int VELOC_Cleanup(const char* name) {
  if (!client()) return absent("VELOC_Cleanup");
  return result("VELOC_Cleanup", client()->cleanup(text_of(name)));
}

}  // extern "C"
