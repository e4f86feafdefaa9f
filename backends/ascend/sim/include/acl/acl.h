#pragma once
// The names of the host runtime that generated text mentions; its host part is not run here.
typedef int aclError;
#define ACL_SUCCESS 0
#define ACL_RT_THREAD_LEVEL 0
inline int aclrtGetLastError(int) { return 0; }
