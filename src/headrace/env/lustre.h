// How files made in a folder are spread over the servers of a Lustre file system. Asked of Lustre's
// own library, which is loaded when it is there; all else about files goes through env/file.h.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/status.h"

namespace headrace {

struct Striping {
  int count = 0;       // servers (OSTs) that a file lies on; 0: Lustre's default, -1: all
  uint64_t bytes = 0;  // on one before the next one's turn: a multiple of 64 KiB; 0: the default
};

// Gives files made in `folder` from now on this layout: what `lfs setstripe FOLDER` does.
//   kInvalidArgument   numbers that no layout can have.
//   kUnimplemented     Lustre's library is not there, or the folder is not on Lustre.
//   kPermissionDenied and others  what Lustre says.
Status SetFolderStriping(const std::string& folder, const Striping& striping,
                         const std::string& library = "liblustreapi.so");

}  // namespace headrace
