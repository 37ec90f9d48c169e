// Where the operands of a command are: paths, or URLs with the session's settings, read through the
// cache of this node where that is asked for. Functions without state; the main thread.
#pragma once

#include <string>
#include <vector>

#include "headrace/cache/cache_settings.h"
#include "headrace/cli/commands.h"
#include "headrace/object/url_file_system.h"

namespace headrace::cli {

void DeclareCache(Arguments* arguments, CacheArguments* cache);
// What the arguments say of the cache, and where they are empty the environment. Fails as
// cache::ReadCacheSettings.
Result<cache::BlockCacheOptions> ReadCacheArguments(const CacheArguments& cache);
// Lets the session's storage be read through the cache that its arguments or the environment name,
// if any; a file system that was made of it before is not. Fails as ReadCacheArguments.
Status UseCache(Session* session);
// Waits, some seconds at most, until what was fetched has come to the cache's disk.
void LeaveCache(const Session& session);

// A path stays one of the session's file system. Fails as object::LocateUrl.
Result<object::Place> Locate(const Session& session, const std::string& operand);
// Makes paths of several operands, all of the file system that it returns. kInvalidArgument when
// they need different ones: URLs with a user or a query go one at a time.
Result<FileSystem*> LocateAll(const Session& session, std::vector<std::string>* operands);

}  // namespace headrace::cli
