/* nvToolsExt.h of the emulator: ranges are counted, so that one that is not closed is an error when the process ends. */
#ifndef DTCU_EMULATED_NVTX_H
#define DTCU_EMULATED_NVTX_H
extern "C" {
int nvtxRangePushA(const char *name);
int nvtxRangePop(void);
void nvtxMarkA(const char *name);
}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
#endif
